package wire_test

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// arbitrary fills v, a struct, with what its tags and schemas allow.
func arbitrary(t *rapid.T, v reflect.Value, patterns func(typ, member string) string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if options != "" && rapid.Bool().Draw(t, name+" left out") {
			continue
		}
		a := text{name: name, enum: f.Tag.Get("enum"), pattern: patterns(v.Type().Name(), name)}
		draw(t, v.Field(i), a, patterns)
	}
}

// text is what the strings of one member look like.
type text struct{ name, enum, pattern string }

func (a text) draw(t *rapid.T) string {
	switch {
	case a.enum != "":
		return rapid.SampledFrom(strings.Split(a.enum, "|")).Draw(t, a.name)
	case a.pattern != "":
		return rapid.StringMatching(a.pattern).Draw(t, a.name)
	}
	return rapid.StringN(0, 12, -1).Draw(t, a.name)
}

func draw(t *rapid.T, v reflect.Value, a text, patterns func(typ, member string) string) {
	switch v.Interface().(type) {
	case time.Time:
		at := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, a.name), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
		v.Set(reflect.ValueOf(at))
		return
	case []byte:
		v.SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, a.name))
		return
	case jsontext.Value:
		v.SetBytes([]byte(rapid.SampledFrom([]string{`{}`, `{"a":[1,null]}`, `"x"`, `[]`, `-1.5e3`, `true`}).Draw(t, a.name)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		arbitrary(t, v, patterns)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		draw(t, v.Elem(), a, patterns)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rapid.IntRange(0, 3).Draw(t, a.name), 3))
		for i := range v.Len() {
			draw(t, v.Index(i), a, patterns)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rapid.IntRange(0, 3).Draw(t, a.name) {
			held := reflect.New(v.Type().Elem()).Elem()
			draw(t, held, a, patterns)
			v.SetMapIndex(reflect.ValueOf(rapid.String().Draw(t, "key")), held)
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf(rapid.SampledFrom([]any{"x", true, 1.5, []any{"y"}, map[string]any{"z": false}}).Draw(t, a.name)))
	default:
		scalar(t, v, a)
	}
}

func scalar(t *rapid.T, v reflect.Value, a text) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(a.draw(t))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, a.name))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, a.name))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, a.name))
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(-1e9, 1e9).Draw(t, a.name))
	default:
		panic(fmt.Sprintf("no values of %s: bodies hold other types", v.Type()))
	}
}
