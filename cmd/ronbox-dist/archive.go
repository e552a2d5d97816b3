package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/systemd"
)

// file is an entry of a package: a regular file, or a directory if mode has fs.ModeDir.
type file struct {
	name  string // without "/" at either end
	mode  fs.FileMode
	owner int // number of user and group
	body  []byte
}

func regular(name string, body []byte) file { return file{name: name, mode: 0o644, body: body} }

// withParents returns the files and the directories that hold them, sorted by name.
func withParents(files []file) []file {
	known := map[string]bool{}
	out := slices.Clone(files)
	for _, f := range files {
		known[f.name] = true
	}
	for _, f := range files {
		for dir := path.Dir(f.name); dir != "." && !known[dir]; dir = path.Dir(dir) {
			known[dir] = true
			out = append(out, file{name: dir, mode: fs.ModeDir | 0o755})
		}
	}
	slices.SortFunc(out, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return out
}

// packTar returns a tar archive of the files in their order. Each name begins with prefix, each
// time is made.
func packTar(prefix string, made time.Time, files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: prefix + f.name, Mode: int64(f.mode.Perm()), ModTime: made,
			Size: int64(len(f.body)), Uid: f.owner, Gid: f.owner, Format: tar.FormatGNU,
		}
		if f.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if f.owner == 0 {
			h.Uname, h.Gname = "root", "root"
		}
		if f.mode.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(h.Name, "/")+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// compress returns b in gzip without a name and a time. Best compression is for documents, where
// Debian wants it; on a binary it takes three times as long for a hundredth of its size.
func compress(level int, b []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, level) // the level exists
	_, _ = w.Write(b)                        // a bytes.Buffer takes all
	_ = w.Close()
	return out.Bytes()
}

// tarball returns the archive that runs wherever it is unpacked. Its units are for an installation
// in /usr/local/bin.
func (r *release) tarball(b binary) ([]byte, error) {
	files := slices.Clone(r.documents)
	files = append(files, file{name: "ronbox", mode: 0o755, body: b.body},
		regular("completions/ronbox.bash", r.completions["bash"]),
		regular("completions/_ronbox", r.completions["zsh"]),
		regular("completions/ronbox.fish", r.completions["fish"]))
	for _, page := range r.manual {
		files = append(files, regular("man/man1/"+page.name, page.body))
	}
	for _, u := range r.units {
		text := strings.ReplaceAll(u.Text, binaryPath, "/usr/local/bin/ronbox")
		files = append(files, regular("systemd/"+u.Name, []byte(text)))
	}
	out, err := packTar("ronbox_"+r.version+"_linux_"+b.arch+"/", r.made, withParents(files))
	return compress(gzip.DefaultCompression, out), err
}

// installed returns the files of a package of a distribution, without its documents.
// zshDir is the directory of completions for zsh.
func (r *release) installed(b binary, zshDir string) []file {
	const share = "usr/share/"
	files := []file{
		{name: strings.TrimPrefix(binaryPath, "/"), mode: 0o755, body: b.body},
		regular(share+"bash-completion/completions/ronbox", r.completions["bash"]),
		regular(share+zshDir+"/_ronbox", r.completions["zsh"]),
		regular(share+"fish/vendor_completions.d/ronbox.fish", r.completions["fish"]),
	}
	for _, page := range r.manual {
		files = append(files, regular(share+"man/man1/"+page.name+".gz", compress(gzip.BestCompression, page.body)))
	}
	for _, u := range r.units {
		name := "usr/lib/systemd/system/" + u.Name
		if u.Name == systemd.SysusersName {
			name = "usr/lib/sysusers.d/ronbox.conf"
		}
		files = append(files, regular(name, []byte(u.Text)))
	}
	return files
}
