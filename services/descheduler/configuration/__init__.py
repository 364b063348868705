"""DeschedulerConfiguration: its document, its defaults and its checks."""
