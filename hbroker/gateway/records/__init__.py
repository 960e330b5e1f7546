"""What gateways tell one another of sessions: records, claims, presence, and how they are authenticated."""
