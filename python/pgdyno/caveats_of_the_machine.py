"""What the doctor finds of a machine, by the code of its caveat: the sentence, and what can be done."""

from __future__ import annotations

from collections.abc import Mapping

OF_THE_MACHINE: Mapping[str, tuple[str, str]] = {
    "governor": (
        "The processor's frequency governor is {governor}: how fast a core runs depends on what it did just "
        "before.",
        "Set it to performance while you measure (cpupower frequency-set -g performance).",
    ),
    "boost": (
        "The processor may raise its clock above what it can keep up (boost): how fast a core runs depends "
        "on its heat and on what the other cores do.",
        "Turn it off while you measure: write 0 to /sys/devices/system/cpu/cpufreq/boost, or 1 to "
        "/sys/devices/system/cpu/intel_pstate/no_turbo.",
    ),
    "heat": (
        "Cores were slowed down for their heat {times} times {when}.",
        "Cool the machine or turn boost off, and measure again.",
    ),
    "on-battery": (
        "The machine runs on its battery, and saves power where it can.",
        "Plug it in.",
    ),
    "smt": (
        "Cores are pairs of threads that share one core's units (SMT): how fast one runs depends on what its "
        "twin does.",
        "Turn it off while you measure (write off to /sys/devices/system/cpu/smt/control), or use no more "
        "clients than there are whole cores.",
    ),
    "virtual-machine": (
        "The machine is virtual (hypervisor: {hypervisor}): neighbours use its caches, memory and disk, and "
        "what they do is not seen from here.",
        "Trust slices and many blocks, and confirm small effects on another day or on a machine of your own.",
    ),
    "numa": (
        "The machine has {nodes} nodes of memory ({settings}): how far a server's memory is from its cores "
        "changes from start to start.",
        "Bind everything to one node (numactl --cpunodebind=0 --membind=0 pgdyno …); keep "
        "kernel.numa_balancing and vm.zone_reclaim_mode at 0.",
    ),
    "huge-pages": (
        "The kernel makes huge pages by itself wherever it can (transparent_hugepage is always), and holds "
        "processes up for it at moments that nobody chose.",
        "Write madvise to /sys/kernel/mm/transparent_hugepage/enabled; for shared buffers reserve huge pages "
        "(vm.nr_hugepages), which huge_pages = try then takes.",
    ),
    "small-pages": (
        "The shared buffers of {arms} are not in huge pages ({reason}): with {clients} clients the page "
        "tables of a server's processes may grow to {tables}, and page faults and address lookups take a "
        "part of each transaction.",
        "Reserve huge pages before the servers start (sysctl vm.nr_hugepages={pages}), with huge_pages = try "
        "or on. Transparent huge pages do not back shared buffers by default.",
    ),
    "preemption": (
        "The kernel is fully preemptible (model {model}): it may suspend a backend that holds a spinlock. A "
        "server with many connections and without huge pages can lose half of its speed.",
        "Boot with preempt=lazy, or with preempt=none where the kernel has it; a real-time kernel (rt) has "
        "no such choice. Reserve huge pages for shared buffers (vm.nr_hugepages).",
    ),
    "swap-used": (
        "{used} are swapped out: what is needed of them comes back from the disk while something is "
        "measured.",
        "Free memory, then empty the swap (swapoff -a && swapon -a).",
    ),
    "swapping": (
        "{moved} went to swap or came from it {when}: memory was short, and its disk busy.",
        "Give the servers smaller shared_buffers and fewer clients, or the machine more memory.",
    ),
    "out-of-memory": (
        "The kernel ended processes for want of memory {when}: {times}.",
        "Give the servers smaller shared_buffers and work_mem, or the machine more memory.",
    ),
    "machine-steal": (
        "The hypervisor took away {share} of the CPU time that was wanted {when} (limit {limit}).",
        "Measure when the neighbours are quiet or on a machine of your own, or trust only many blocks.",
    ),
    "other-load": (
        "Other programs used {share} of the CPU {when} (limit {limit}; the busiest: {names}).",
        "Stop them, or measure when they do not run.",
    ),
    "pressure": (
        "Work of other programs stood still for want of {what} for {share} of the time {when} "
        "(limit {limit}).",
        "Look for what uses the machine (top, iotop), and measure without it.",
    ),
    "cpu-limited": (
        "A control group allows {cores} cores' time of the {of} that are seen: whoever has used it up stands "
        "still until the next period.",
        "Take the limit away, or bind to whole cores instead (cpuset; docker --cpuset-cpus).",
    ),
    "cpu-withheld": (
        "A control group withheld CPU for {withheld} {when}.",
        "Take the limit away, or bind to whole cores instead (cpuset; docker --cpuset-cpus).",
    ),
    "memory-limited": (
        "A control group allows {limit} of the machine's {of} of memory, and what the operating system "
        "caches of files is in it.",
        "Take the limit away, or choose settings and data for that size.",
    ),
    "files-limited": (
        "A process may have only {files} files open (limit {limit}): backends that need more close files and "
        "open them again.",
        "Raise it (ulimit -n).",
    ),
    "slow-clock": (
        "To read the clock takes {read_ns} ns (source {source}; limit {limit_ns} ns): whatever is timed "
        "often, as by track_io_timing or EXPLAIN ANALYZE, is slowed down by it.",
        "Have the kernel use tsc, where the processor's is stable (clocksource=tsc at boot).",
    ),
    "clock-set": (
        "The time of day was set by {step} {when}: moments of different programs do not fit together.",
        "Let the clock be slewed, not set, while a study runs (chrony's makestep only at boot).",
    ),
    "file-system": (
        "The data lie on a file system of type {file_system}: {consequence}.",
        "Point PGDYNO_CACHE to a directory on a file system like that of the servers you have in mind "
        "(ext4 or xfs on a disk of its own).",
    ),
    "space-short": (
        "Only {free} are free where the data lie, {share} of that file system (limits {limit_size} and "
        "{limit}): file systems that are nearly full are slow, and a study that fills them ends.",
        "Make room (pgdyno cache prune), or point PGDYNO_CACHE elsewhere.",
    ),
    "flush-too-fast": (
        "To write a page and flush it took {median} where the data lie, less than a disk of this kind needs "
        "(limit {limit}): it is confirmed from a cache that a power loss may empty, and commits cost less "
        "than where they are safe.",
        "Find out whether that cache keeps its power (a battery, capacitors); if not, turn it off, or do not "
        "conclude from commits here.",
    ),
    "flush-slow": (
        "To write a page and flush it took {median} where the data lie (limit {limit}): commits wait for the "
        "disk, and whatever else differs hides behind it.",
        "Point PGDYNO_CACHE to a faster disk, or look at CPU per transaction rather than throughput.",
    ),
    "flush-uneven": (
        "To write a page and flush it took {median} in the median where the data lie, but {p99} at the 99th "
        "percentile (limit {limit}): commits wait for others' writing, now long, now not.",
        "Find what else writes to that disk, or take one of your own; else trust only many blocks.",
    ),
}
