select batch(1000, :accounts);
