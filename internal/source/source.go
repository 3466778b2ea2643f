// Package source has what those who show wheels ask of them.
package source

import "reflect"

// Missing reports whether s, an interface of any type, is nil or a nil pointer, which would panic
// each time that it is asked.
func Missing(s any) bool {
	v := reflect.ValueOf(s)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
