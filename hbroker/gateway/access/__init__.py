"""Who may connect, and what each client may read and write (MQTT 5 §5.4)."""
