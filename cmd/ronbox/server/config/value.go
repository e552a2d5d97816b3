package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"ronbox/appliance/unit"
)

// leaf is one key of the configuration: its dotted name, the field that holds its value, and how a
// change is applied.
type leaf struct {
	key    string
	value  reflect.Value
	reload string
	oneOf  []string // the allowed values; nil: not restricted to a list
}

// leaves returns every key of cfg in the order of the struct. Setting the value of a leaf modifies
// cfg.
func leaves(cfg *Config) []leaf {
	return appendLeaves(nil, "", ReloadRestart, reflect.ValueOf(cfg).Elem())
}

func appendLeaves(out []leaf, prefix, reload string, v reflect.Value) []leaf {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			panic(fmt.Sprintf("config: field %s of %s has no toml tag", f.Name, v.Type()))
		}
		own := cmp.Or(f.Tag.Get("reload"), reload)
		if key := prefix + name; isSection(v.Field(i)) {
			out = appendLeaves(out, key+".", own, v.Field(i))
		} else {
			out = append(out, leaf{key: key, value: v.Field(i), reload: own, oneOf: strings.Fields(f.Tag.Get("oneof"))})
		}
	}
	return out
}

// isSection reports whether v is a table of keys. A struct that unmarshals itself from text, such
// as a duration, is a value.
func isSection(v reflect.Value) bool {
	_, text := v.Addr().Interface().(encoding.TextUnmarshaler)
	return v.Kind() == reflect.Struct && !text
}

// find returns the leaf of key, or nil if the key does not exist.
func find(all []leaf, key string) *leaf {
	for i := range all {
		if all[i].key == key {
			return &all[i]
		}
	}
	return nil
}

// sectionOf reports whether key is a section.
func sectionOf(all []leaf, key string) bool {
	for _, l := range all {
		if strings.HasPrefix(l.key, key+".") {
			return true
		}
	}
	return false
}

// envName returns the name of the environment variable that sets key.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "__"))
}

// nearest returns the known key that an unknown key probably means: the only key with the same last
// name in the section, else in all sections, else the key or section with a similar spelling. It
// returns "" if nothing is similar.
func nearest(key string, known []string) string {
	name := key[strings.LastIndexByte(key, '.')+1:]
	section, _, _ := strings.Cut(key, ".")
	var same, own, all []string
	for _, k := range known {
		all = append(all, k)
		for i, c := range k {
			if c == '.' {
				all = append(all, k[:i])
			}
		}
		if strings.HasSuffix(k, "."+name) {
			same = append(same, k)
			if strings.HasPrefix(k, section+".") {
				own = append(own, k)
			}
		}
	}
	for _, one := range [][]string{own, same} {
		if len(one) == 1 {
			return one[0]
		}
	}
	return unit.Nearest(key, all)
}

// assign stores a decoded TOML value in a field. The types must match; only numbers are converted,
// to the type of the field.
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

// memberError describes an invalid member of a table.
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

// assignText stores the text of an environment variable in a field. A list is separated by commas
// or written as in TOML. A table is written as in TOML.
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

// scalar parses s as an integer, a boolean or a float. It returns s itself if s is none of these.
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
