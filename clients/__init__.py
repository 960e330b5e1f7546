"""The commands hpub and hsub: the flags of mosquitto_pub and mosquitto_sub, over hbroker's public API."""
