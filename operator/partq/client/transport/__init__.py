"""How clients reach brokers: sessions, connections, the layout, and who owns a partition."""
