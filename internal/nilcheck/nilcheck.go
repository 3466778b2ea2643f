// Package nilcheck detects nil arguments that a comparison with nil misses.
package nilcheck

import "reflect"

// IsNil reports whether v is a nil interface or holds a nil pointer. A method call on such a value
// would panic. Other nil values, such as slices and maps, may have methods that work.
func IsNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
