"""The study of WASE: mapping task graphs."""
