ALTER SEQUENCE {table}_transactionid_seq CACHE 1000 START {next} RESTART
