"""What the API server is told about objects before it stores them: pure rules, served by the gateway."""
