package driver

import "strconv"

var (
	stateNames = []string{"Scheduled", "Leased", "Firing", "Dead"}
	opNames    = []string{
		"Begin", "Ack", "Retry", "Bury", "Release", "Extend",
		"Cancel", "Reschedule", "Replay", "Purge", "Expire",
	}
	statusNames = []string{
		"Done", "Duplicate", "Firing", "NotFound", "LeaseLost", "Early", "Paused", "Dead",
	}
)

// String returns the name of the state without its prefix, or "State(n)" for an undeclared value.
func (s State) String() string { return nameOf("State", stateNames, uint8(s)) }

// String returns the name of the transition without its prefix, or "Op(n)" for an undeclared value.
func (o Op) String() string { return nameOf("Op", opNames, uint8(o)) }

// String returns the name of the status without its prefix, or "Status(n)" for an undeclared value.
func (s Status) String() string { return nameOf("Status", statusNames, uint8(s)) }

// nameOf returns the name of a value of a type whose declared values start at 1.
func nameOf(kind string, names []string, n uint8) string {
	if n == 0 || int(n) > len(names) {
		return kind + "(" + strconv.Itoa(int(n)) + ")"
	}
	return names[n-1]
}
