"""How clients reach brokers: sessions, connections, the layout, and owners of partitions."""
