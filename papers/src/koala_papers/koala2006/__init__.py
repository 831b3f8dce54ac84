"""The study of 2006: WF, CM and FCM on the DAS-2."""
