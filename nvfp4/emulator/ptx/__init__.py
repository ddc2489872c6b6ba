"""PTX front end: text -> syntax tree (`parser`) -> one flat kernel (`program`, `flow`)."""
