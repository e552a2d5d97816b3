package console

import (
	"embed"
	"fmt"
	"html/template"
	"mime"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/httpapi"
)

//go:embed static
var staticFS embed.FS

// file is an embedded file. Its URL holds a digest of its bytes, so that it is kept for ever.
type file struct {
	kind  string
	bytes []byte
	url   string
	tag   string
}

// staticFiles returns the files by name.
func staticFiles() map[string]file {
	out := map[string]file{}
	rows, err := staticFS.ReadDir("static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	for _, row := range rows {
		b, err := staticFS.ReadFile("static/" + row.Name())
		if err != nil {
			panic(err)
		}
		sum := b3.Sum(b).String()[3:19]
		kind := mime.TypeByExtension(path.Ext(row.Name()))
		if path.Ext(row.Name()) == ".js" {
			kind = "text/javascript; charset=utf-8"
		}
		out[row.Name()] = file{kind: kind, bytes: b, url: staticPath + sum + "/" + row.Name(), tag: httpapi.TagOf(b)}
	}
	return out
}

// getStatic serves an embedded file under any digest: a page that was made before an update still
// finds its style.
func (h *Console) getStatic(c *httpapi.Request) error {
	f, ok := h.files[path.Base(c.Param(paramFile))]
	if !ok {
		return httpapi.ErrNoRoute
	}
	cache := httpapi.CacheAsk
	if c.HTTP().URL.Path == f.url {
		cache = httpapi.CacheForever
	}
	return h.sendFile(c, f, cache)
}

// getIcon serves /favicon.ico.
func (h *Console) getIcon(c *httpapi.Request) error {
	return h.sendFile(c, h.files["icon.svg"], httpapi.CacheAsk)
}

func (h *Console) sendFile(c *httpapi.Request, f file, cache string) error {
	c.Set("Content-Type", f.kind)
	c.Set("Cache-Control", cache)
	c.Set("Etag", f.tag)
	if has, _ := httpapi.Matches(c.HTTP().Header["If-None-Match"], f.tag, true); has {
		c.WriteHeader(304)
		return nil
	}
	_, _ = c.Write(f.bytes)
	return nil
}

// templateFuncs are the functions of the templates.
func templateFuncs(files map[string]file) template.FuncMap {
	return template.FuncMap{
		"asset": func(name string) string { return files[name].url },
		"bytes": humanBytes,
		"count": thousands,
		"clip":  shorten,
		"brief": brief,
		"plain": plain,
		"label": label,
		"site":  func(key string) string { return strings.TrimPrefix(key, "name:") },
		"wrong": func(name, text string) wrong { return wrong{name, text} },
		"utc":   func(t instant) string { return clock(t.UTC()) },
		"instant": func(text string) string {
			t, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				return text
			}
			return clock(t)
		},
		"iso":   func(t instant) string { return t.UTC().Format(time.RFC3339Nano) },
		"since": func(seconds int64) string { return unit.Short(time.Duration(seconds) * time.Second) },
		"join":  strings.Join,
		"prev":  func(v uint64) uint64 { return v - 1 },
		"percent": func(n, of int) int {
			if of == 0 {
				return 0
			}
			return min(100, 100*n/of)
		},
		"amount": func(s string) string {
			sign, digits := "", s
			if strings.HasPrefix(s, "-") {
				sign, digits = "-", s[1:]
			}
			return sign + groups(digits)
		},
	}
}

// clock returns a time without script, in UTC.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// brief returns a value from outside as plain does, unless it is a digest.
func brief(s string) string {
	if strings.HasPrefix(s, "b3:") {
		return shorten(s)
	}
	return plain(s)
}

// plain spells out the bidirectional controls of a text from outside, so that it cannot be shown in
// another order than it has.
func plain(s string) string {
	var out strings.Builder
	for _, r := range s {
		if unicode.Is(unicode.Bidi_Control, r) {
			fmt.Fprintf(&out, "\\u%04x", r)
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

// humanBytes returns a size as people read it.
func humanBytes(n int64) string {
	v, step := float64(n), 0
	for v >= 1024 && step < 4 {
		v, step = v/1024, step+1
	}
	if step == 0 {
		return strconv.FormatInt(n, 10) + " B"
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + []string{"B", "KiB", "MiB", "GiB", "TiB"}[step]
}

// thousands returns a number with its digits in groups.
func thousands(v any) string {
	switch n := v.(type) {
	case int:
		return groups(strconv.Itoa(n))
	case int64:
		return groups(strconv.FormatInt(n, 10))
	case uint64:
		return groups(strconv.FormatUint(n, 10))
	case uint32:
		return groups(strconv.FormatUint(uint64(n), 10))
	}
	return ""
}

// groups parts digits by narrow spaces.
func groups(digits string) string {
	var out []string
	for len(digits) > 3 {
		out = append(out, digits[len(digits)-3:])
		digits = digits[:len(digits)-3]
	}
	out = append(out, digits)
	slices.Reverse(out)
	return strings.Join(out, "\u202f")
}

// shorten returns the beginning of a digest or an id.
func shorten(s string) string {
	if s = strings.TrimPrefix(s, "b3:"); len(s) > 16 {
		return s[:16] + "…"
	}
	return s
}

// instant is a time.Time or a wire.Instant.
type instant interface{ UTC() time.Time }
