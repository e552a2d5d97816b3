package site

import (
	"errors"
	"strings"
)

// Names of files with a task.
const (
	Index    = "index.html" // of a directory
	Fallback = "200.html"   // of a path without a file, for a browser that opens a page
	NotFound = "404.html"   // of a path without a file
	page     = ".html"      // may be left out in a path
)

// codings lists the extensions of compressed files, with their names in HTTP. The file app.js.br is
// the brotli form of app.js.
var codings = []struct{ ext, name string }{{".br", "br"}, {".zst", "zstd"}, {".gz", "gzip"}}

// Request asks a manifest for a file.
type Request struct {
	Path   string  // decoded, relative; a directory is "" or ends with a slash
	Page   bool    // Accept names text/html, as browsers do when they open a page
	Weight Codings // nil: no coding is accepted
}

// Codings returns the weight of a coding in Accept-Encoding. 0 means that it is not accepted.
type Codings func(coding string) float64

// Found is the answer to a Request: the file to send, under the type of the file that was asked
// for.
type Found struct {
	File
	Coding  string   // Content-Encoding of the file; "": none
	Missing bool     // the path has no file, and File is NotFound
	Vary    []string // headers of the request on which the answer depends
}

// ErrDirectory is returned by Look for a directory that is requested without a slash at its end.
var ErrDirectory = errors.New("site: the path is a directory; add a slash")

// Look returns the file that a request gets. It is the first that exists of: the file of the path,
// which is the Index for a directory; the path with .html; Fallback, if the request is for a page;
// NotFound. If the file has compressed forms, Look returns the one with the highest weight, and of
// equal ones the smallest. It returns ErrDirectory for a directory without the slash, and false if
// no file exists.
func (m *Manifest) Look(r Request) (f Found, ok bool, err error) {
	if f.File, ok, err = m.at(r.Path); err != nil {
		return f, false, err
	}
	if !ok {
		if f, ok = m.instead(r.Page); !ok {
			return f, false, nil
		}
	}
	m.compress(&f, r.Weight)
	return f, true, nil
}

// at returns the file of a path.
func (m *Manifest) at(path string) (f File, ok bool, err error) {
	if path == "" || strings.HasSuffix(path, "/") {
		f, ok = m.Find(path + Index)
		return f, ok, nil
	}
	for _, name := range []string{path, path + page} {
		if f, ok = m.Find(name); ok {
			return f, true, nil
		}
	}
	if _, ok = m.Find(path + "/" + Index); ok {
		return f, false, ErrDirectory
	}
	return f, false, nil
}

// instead returns the file that stands in for one that does not exist.
func (m *Manifest) instead(forPage bool) (f Found, ok bool) {
	whole, exists := m.Find(Fallback)
	if exists {
		f.Vary = []string{"Accept"}
	}
	if exists && forPage {
		f.File = whole
		return f, true
	}
	f.File, ok = m.Find(NotFound)
	f.Missing = true
	return f, ok
}

// compress replaces the file of f by its best compressed form that is accepted. The type stays.
func (m *Manifest) compress(f *Found, weight Codings) {
	plain, best, coded := f.File, 0.0, false
	for _, c := range codings {
		form, ok := m.Find(plain.Path + c.ext)
		if !ok {
			continue
		}
		coded = true
		if weight == nil {
			continue
		}
		if q := weight(c.name); q > best || q == best && q > 0 && form.Size < f.Size {
			best, f.File, f.Coding = q, form, c.name
		}
	}
	f.Type = plain.Type
	if coded {
		f.Vary = append(f.Vary, "Accept-Encoding")
	}
}
