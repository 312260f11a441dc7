"""Jobs and pods of Kubernetes: what they ask for, and what their owners say."""
