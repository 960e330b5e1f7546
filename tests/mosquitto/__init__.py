"""Configurations of mosquitto: what is made of them, beside what mosquitto does with them."""
