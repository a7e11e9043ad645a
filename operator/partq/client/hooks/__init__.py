"""What an application puts between itself and its messages: serializers, interceptors."""
