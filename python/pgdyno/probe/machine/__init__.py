"""What this machine is and does just now, as far as it disturbs measurements; ``lab.doctor`` judges it.

    state = examine_machine(watch_s=2.0, data_path=cache, sync_s=1.0)
    state.as_json()

One module a subject, each with a value and how it is read: from the files of /proc and /sys through a
``Tree``, so that a machine can be made up. What a machine does not tell is None, never a guess.
"""
