"""The receiving side of node agents' messages, for the services that take them: inbox, loop, MQTT session, rejections."""
