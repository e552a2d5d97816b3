package config

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"strings"
)

// leaf is one key of the configuration: its dotted name, the field that holds it, and what a change of it takes.
type leaf struct {
	key    string
	value  reflect.Value
	reload string
	oneOf  []string // the texts it may have; nil: not from a list
}

// leaves lists every key of cfg in the order of the struct. Setting a leaf's value sets cfg.
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

// isSection tells a table of keys from a value that reads itself from text, such as a duration.
func isSection(v reflect.Value) bool {
	_, text := v.Addr().Interface().(encoding.TextUnmarshaler)
	return v.Kind() == reflect.Struct && !text
}

// find gives the leaf named key, or nil.
func find(all []leaf, key string) *leaf {
	for i := range all {
		if all[i].key == key {
			return &all[i]
		}
	}
	return nil
}

// sectionOf reports whether key names a table rather than a value.
func sectionOf(all []leaf, key string) bool {
	for _, l := range all {
		if strings.HasPrefix(l.key, key+".") {
			return true
		}
	}
	return false
}

// envName gives the environment variable that sets key.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "__"))
}

// nearest gives what was meant by a key that does not exist: the only one of the same name in another section, or the one, or the section,
// that is spelt alike.
func nearest(key string, known []string) string {
	name := key[strings.LastIndexByte(key, '.')+1:]
	var same, all []string
	for _, k := range known {
		all = append(all, k)
		for i, c := range k {
			if c == '.' {
				all = append(all, k[:i])
			}
		}
		if strings.HasSuffix(k, "."+name) {
			same = append(same, k)
		}
	}
	if len(same) == 1 {
		return same[0]
	}
	return suggest(key, all)
}

// suggest gives the known name nearest to name, or "" when none is near enough to be what was meant: at most a third
// of the name, and at least one letter, may differ.
func suggest(name string, known []string) string {
	best, bound := "", len(name)/3+1
	for _, k := range known {
		if len(k)-len(name) > bound || len(name)-len(k) > bound {
			continue // so many letters are missing
		}
		if d := distance(name, k); d <= bound && (best == "" || d < distance(name, best)) {
			best = k
		}
	}
	return best
}

// distance is the number of single-letter edits between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diag
			if a[i] != b[j] {
				change++
			}
			diag = row[j+1]
			row[j+1] = min(change, diag+1, row[j]+1)
		}
	}
	return row[len(b)]
}
