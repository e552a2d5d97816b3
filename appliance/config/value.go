package config

import (
	"encoding"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// assign puts a decoded TOML value into a field. The types must agree: nothing is converted but an integer to its
// field's width.
func assign(dst reflect.Value, x any) error {
	if t, ok := dst.Addr().Interface().(encoding.TextUnmarshaler); ok {
		s, isText := x.(string)
		if !isText {
			return fmt.Errorf("must be a quoted string")
		}
		return t.UnmarshalText([]byte(s))
	}
	switch dst.Kind() {
	case reflect.Slice:
		return assignSlice(dst, x)
	case reflect.Map:
		return assignMap(dst, x)
	default:
		return assignScalar(dst, x)
	}
}

func assignScalar(dst reflect.Value, x any) error {
	switch v := x.(type) {
	case string:
		if dst.Kind() == reflect.String {
			dst.SetString(v)
			return nil
		}
	case bool:
		if dst.Kind() == reflect.Bool {
			dst.SetBool(v)
			return nil
		}
	case int64:
		return assignInt(dst, v)
	case float64:
		if dst.CanFloat() {
			dst.SetFloat(v)
			return nil
		}
	}
	return fmt.Errorf("must be %s", kindName(dst.Type()))
}

func assignInt(dst reflect.Value, v int64) error {
	switch {
	case dst.CanInt() && !dst.OverflowInt(v):
		dst.SetInt(v)
	case dst.CanUint() && v >= 0 && !dst.OverflowUint(uint64(v)):
		dst.SetUint(uint64(v))
	case dst.CanFloat() && v <= 1<<53 && v >= -1<<53:
		dst.SetFloat(float64(v))
	case dst.CanInt() || dst.CanUint():
		return fmt.Errorf("is out of range")
	default:
		return fmt.Errorf("must be %s", kindName(dst.Type()))
	}
	return nil
}

func assignSlice(dst reflect.Value, x any) error {
	items, ok := x.([]any)
	if !ok {
		return fmt.Errorf("must be %s", kindName(dst.Type()))
	}
	out := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		if err := assign(out.Index(i), item); err != nil {
			return fmt.Errorf("element %d %w", i, err)
		}
	}
	dst.Set(out)
	return nil
}

// memberError is what is wrong with one member of a table.
type memberError struct {
	member string
	err    error
}

func (e *memberError) Error() string { return fmt.Sprintf("member %s %v", part(e.member), e.err) }

func assignMap(dst reflect.Value, x any) error {
	items, ok := x.(map[string]any)
	if !ok {
		return fmt.Errorf("must be %s", kindName(dst.Type()))
	}
	out := reflect.MakeMapWithSize(dst.Type(), len(items))
	for _, k := range slices.Sorted(maps.Keys(items)) {
		item := items[k]
		slot := reflect.New(dst.Type().Elem()).Elem()
		if err := assign(slot, item); err != nil {
			return &memberError{member: k, err: err}
		}
		out.SetMapIndex(reflect.ValueOf(k).Convert(dst.Type().Key()), slot)
	}
	dst.Set(out)
	return nil
}

// assignText puts the text of an environment variable into a field. A list is separated by commas or
// written as in TOML, a table is written as in TOML.
func assignText(dst reflect.Value, s string) error {
	if t, ok := dst.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return t.UnmarshalText([]byte(s))
	}
	switch dst.Kind() {
	case reflect.String:
		dst.SetString(s)
		return nil
	case reflect.Slice:
		if !strings.HasPrefix(s, "[") {
			return assignList(dst, s)
		}
		return assignTOML(dst, s)
	case reflect.Map:
		return assignTOML(dst, s)
	default:
		return assignScalar(dst, scalar(s))
	}
}

func assignList(dst reflect.Value, s string) error {
	var parts []string
	if s != "" {
		parts = strings.Split(s, ",")
	}
	out := reflect.MakeSlice(dst.Type(), len(parts), len(parts))
	for i, p := range parts {
		if err := assignText(out.Index(i), strings.TrimSpace(p)); err != nil {
			return fmt.Errorf("element %d %w", i, err)
		}
	}
	dst.Set(out)
	return nil
}

func assignTOML(dst reflect.Value, s string) error {
	var doc map[string]any
	if err := toml.Unmarshal([]byte("v = "+s), &doc); err != nil || len(doc) != 1 {
		return fmt.Errorf("must be %s as TOML writes it", kindName(dst.Type()))
	}
	return assign(dst, doc["v"])
}

// scalar reads s as the integer, number or truth value it spells, else leaves it a string.
func scalar(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if s == "true" || s == "false" {
		return s == "true"
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return f
	}
	return s
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "a table"
	case reflect.String:
		return "a quoted string"
	default:
		return "a whole number"
	}
}
