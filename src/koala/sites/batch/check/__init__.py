"""The check of a site, step by step: can it be used, and what must be fixed?"""
