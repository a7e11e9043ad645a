"""What stands between an application and its messages: serializers, CloudEvents, interceptors."""
