"""How often the diagnosis alarms where nothing is wrong: real deployments, real load, judged again and again."""
