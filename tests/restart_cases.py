"""Cases of this project in the form of the shared ones: what a restart keeps. Run by conformance.py beside those."""
import subprocess
from kit import *


@case(needs="restart_cmd", serial=True)
def a_restart_keeps_declarations_and_drops_messages(c):
    """A declared queue survives a restart of the node, configured and empty; one that nobody declared does not. [SPEC 1, configure]"""
    declared, implicit = c.q("declared"), c.q("implicit")
    c.configure(declared, ttlSeconds=77, policy="dropOldest", windowBuffer={"ms": 5, "count": 2})
    c.push(declared, [1, 2])
    c.push(implicit, [1])
    before = c.row(declared)
    subprocess.run(c.opts.restart_cmd, shell=True, check=True)
    after = c.row(declared)
    eq(after["options"], before["options"], "options in force after the restart")
    eq([after["tier"], after["depth"]], ["declared", 0], "tier and depth after the restart")
    eq(c.row(implicit), None, "the queue that nobody declared")
    eq(c.pop(declared), [], "messages after the restart")
    c.delete(declared)
    subprocess.run(c.opts.restart_cmd, shell=True, check=True)
    eq(c.row(declared), None, "a deleted declaration after a restart")
