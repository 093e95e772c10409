"""An order service: Postgres, an outbox to RabbitMQ, and a warehouse that ships. Begin with README.md."""
