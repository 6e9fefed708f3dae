"""What decides who may read: signed requests made statements, rows compared with the log, checkpoints and receipts."""
