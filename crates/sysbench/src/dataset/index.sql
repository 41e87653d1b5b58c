CREATE INDEX k_{n} ON sbtest{n} (k)
