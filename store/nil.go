package store

import "reflect"

// IsNil reports whether there is no store: st is nil, or a nil pointer, such as a driver's
// constructor returns beside an error. Packages of this project check it before they start
// anything.
func IsNil(st Store) bool {
	if st == nil {
		return true
	}
	v := reflect.ValueOf(st)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
