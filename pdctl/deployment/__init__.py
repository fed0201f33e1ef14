"""What is deployed: `pd.toml` becomes a `Deployment`; where its state lives; what already runs."""
