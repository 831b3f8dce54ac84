"""The placement policies of KOALA and those built on them: WF, CM, FCM, CF and their network-aware kin."""
