package durable

import "strconv"

var resultNames = []string{"Cancelled", "Rescheduled", "Firing", "NotFound"}

// String returns the name of the result, or its number if it is none of those declared.
func (r Result) String() string {
	if r == 0 || int(r) > len(resultNames) {
		return "Result(" + strconv.Itoa(int(r)) + ")"
	}
	return resultNames[r-1]
}
