"""What a record says of its workload: facts, what follows from them, and how they are shown."""
