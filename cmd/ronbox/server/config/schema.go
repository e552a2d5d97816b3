package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"ronbox/appliance/unit"
	"ronbox/httpapi/openapi"
)

// Patterns of the durations and sizes that package unit parses. It also requires that the units of
// a duration descend.
const (
	durationPattern = `^(0|([0-9]{1,19}(d|h|m|s|ms|us|ns))+)$`
	sizePattern     = `^(0|[0-9]{1,19}(B|KB|KiB|MB|MiB|GB|GiB|TB|TiB))$`
)

// object is a JSON object of the schema.
type object = map[string]any

// Schema returns the JSON Schema (2020-12) of the file: the keys with their types, defaults,
// descriptions and environment variables (x-env). x-reload states how a change is applied. The
// schema does not contain ranges or rules between keys, so a file that matches it may still be
// invalid.
func Schema() []byte {
	told := descriptions(commented)
	root := table()
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = FileName
	for _, l := range leaves(Default()) {
		at := root
		path := strings.Split(l.key, ".")
		for _, name := range path[:len(path)-1] {
			at = member(at, name)
		}
		at["properties"].(object)[path[len(path)-1]] = l.schema(told[l.key])
	}
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("config: schema: %v", err)) // it holds plain values only
	}
	return append(b, '\n')
}

// table returns the schema of a table that allows no unknown keys.
func table() object {
	return object{"type": "object", "additionalProperties": false, "properties": object{}}
}

// member returns the schema of a table inside another. It adds the table if necessary.
func member(of object, name string) object {
	all := of["properties"].(object)
	if _, ok := all[name]; !ok {
		all[name] = table()
	}
	return all[name].(object)
}

// schema returns the schema of one key.
func (l leaf) schema(description string) object {
	out := typeSchema(l.value.Type())
	out["default"] = jsonDefault(l.value)
	out["x-reload"] = l.reload
	out["x-env"] = envName(l.key)
	if description != "" {
		out["description"] = description
	}
	if len(l.oneOf) > 0 {
		out["enum"] = l.oneOf
	}
	return out
}

// typeSchema returns the schema of a Go type, without the width of its numbers.
func typeSchema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[unit.Duration]():
		return object{"type": "string", "pattern": durationPattern}
	case reflect.TypeFor[unit.Size]():
		return object{"type": "string", "pattern": sizePattern}
	}
	switch t.Kind() {
	case reflect.Slice:
		return object{"type": "array", "items": typeSchema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": typeSchema(t.Elem())}
	}
	out := openapi.Schema(t)
	delete(out, "format")
	return out
}

// jsonDefault returns a default for encoding/json. An empty list or table is not null.
func jsonDefault(v reflect.Value) any {
	switch {
	case v.Kind() == reflect.Slice && v.Len() == 0:
		return []any{}
	case v.Kind() == reflect.Map && v.Len() == 0:
		return object{}
	}
	return v.Interface()
}

// descriptions returns the comments of the commented file, by key. A comment above several keys
// describes each of them.
func descriptions(text string) map[string]string {
	out := map[string]string{}
	section, said, fresh := "", "", false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch comment, isComment := strings.CutPrefix(line, "# "); {
		case isComment && fresh:
			said += " " + comment
		case isComment:
			said, fresh = comment, true
		case strings.HasPrefix(line, "["):
			section, said, fresh = strings.Trim(line, "[]")+".", "", false
		case strings.HasPrefix(line, "#"):
			key, _, _ := strings.Cut(line[1:], " = ")
			out[section+key], fresh = said, false
		default:
			said, fresh = "", false
		}
	}
	return out
}

// retired returns why a key of the previous release no longer has an effect, or "" if key is not
// such a key. For one release, a file that sets a retired key still loads.
func retired(key string) string {
	switch key {
	case "wallet.nonce_pipeline", "wallet.nonce_wait":
		return "a nonce that is ahead of its account is refused at once; leave the nonce out to have it assigned"
	case "wallet.balance_cache_bytes":
		return "a balance is read from the ledger's own memory"
	case "wallet.staleness_window":
		return "a balance is read from the ledger's own memory and is never stale"
	}
	return ""
}
