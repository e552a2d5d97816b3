package openapitest

import "strings"

// find returns the operation for method and path, or nil. A path without parameters takes
// precedence.
func (c *Checker) find(method, path string) (template string, op any) {
	best := -1
	for t, ops := range c.paths {
		fixed, ok := fits(t, path)
		if found := member(ops, strings.ToLower(method)); ok && found != nil && fixed > best {
			template, op, best = t, found, fixed
		}
	}
	return template, op
}

// fits reports whether path is of the template, and how many segments they share as they stand. The
// last parameter takes the rest of the path if nothing follows it and its name says so.
func fits(template, path string) (fixed int, ok bool) {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	for i, w := range want {
		if i >= len(got) {
			return 0, false
		}
		switch {
		case w == got[i]:
			fixed++
		case !strings.HasPrefix(w, "{") || got[i] == "":
			return 0, false
		case (w == "{path}" || w == "{site}") && i == len(want)-1:
			return fixed, true
		}
	}
	return fixed, len(want) == len(got)
}

// member follows names into a JSON value, nil where one is missing.
func member(v any, names ...string) any {
	for _, name := range names {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[name]
	}
	return v
}

// pointer is the JSON pointer to names.
func pointer(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}
