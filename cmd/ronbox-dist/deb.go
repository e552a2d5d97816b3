package main

import (
	"bytes"
	"compress/gzip"
	"crypto/md5" // the digest that dpkg keeps of installed files
	_ "embed"    // the scripts
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// Descriptions of the packages.
const (
	summary     = "edge node with registry, wallet, rewarder, index and map cache"
	description = `ronbox runs five services on one embedded database file: a signed and
witnessed registry, a wallet on a double-entry ledger, a rewarder of usage, an
index of names and providers, and an edge cache of map tiles and assets.`
)

// The scripts of both kinds of packages.
var (
	//go:embed package/postinst
	postinst []byte
	//go:embed package/prerm
	prerm []byte
	//go:embed package/postrm
	postrm []byte
)

// debRoot is the entry of the directory that the package is unpacked into.
var debRoot = file{mode: fs.ModeDir | 0o755}

const debCopyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ronbox

Files: *
Copyright: 2026 the authors of ronbox
License: Apache-2.0
 The licence is in /usr/share/common-licenses/Apache-2.0 on Debian systems.
`

// debOverrides accepts that a Go binary is static.
const debOverrides = "ronbox: statically-linked-binary [usr/bin/ronbox]\n"

// deb returns the package for Debian.
func (r *release) deb(b binary) ([]byte, error) {
	const doc = "usr/share/doc/ronbox/"
	files := append(r.installed(b, "zsh/vendor-completions"),
		regular(doc+"copyright", []byte(debCopyright)),
		regular(doc+"changelog.gz", compress(gzip.BestCompression, r.debChangelog())),
		regular("usr/share/lintian/overrides/ronbox", []byte(debOverrides)))
	for _, d := range r.documents {
		if d.name != "LICENSE" { // copyright names it
			files = append(files, regular(doc+d.name+".gz", compress(gzip.BestCompression, d.body)))
		}
	}
	files = withParents(files)
	data, err := packTar("./", r.made, append([]file{debRoot}, files...))
	if err != nil {
		return nil, err
	}
	control, err := packTar("./", r.made, []file{
		debRoot,
		regular("control", r.debControl(b, files)),
		regular("md5sums", md5sums(files)),
		{name: "postinst", mode: 0o755, body: postinst},
		{name: "postrm", mode: 0o755, body: postrm},
		{name: "prerm", mode: 0o755, body: prerm},
	})
	if err != nil {
		return nil, err
	}
	return packAr(r.made, []file{
		regular("debian-binary", []byte("2.0\n")),
		regular("control.tar.gz", compress(gzip.DefaultCompression, control)),
		regular("data.tar.gz", compress(gzip.DefaultCompression, data)),
	}), nil
}

// debControl returns the control file. Its size counts whole KiB, as dpkg-gencontrol does.
func (r *release) debControl(b binary, files []file) []byte {
	kib := 0
	for _, f := range files {
		kib += max(1, (len(f.body)+1023)/1024)
	}
	return fmt.Appendf(nil, `Package: ronbox
Version: %s
Architecture: %s
Maintainer: %s
Installed-Size: %d
Depends: passwd
Recommends: ca-certificates
Section: net
Priority: optional
Description: %s
 %s
`, r.packageVersion(), b.debArch, r.maintainer, kib, summary, strings.ReplaceAll(description, "\n", "\n "))
}

// debChangelog returns the changelog in Debian's form. It refers to the one of ronbox.
func (r *release) debChangelog() []byte {
	return fmt.Appendf(nil, `ronbox (%s) unstable; urgency=medium

  * Commit %.12s. CHANGELOG.md.gz lists the changes.

 -- %s  %s
`, r.packageVersion(), r.commit, r.maintainer, r.made.Format(time.RFC1123Z))
}

// md5sums returns the digests of the regular files.
func md5sums(files []file) []byte {
	var out []byte
	for _, f := range files {
		if !f.mode.IsDir() {
			out = fmt.Appendf(out, "%x  %s\n", md5.Sum(f.body), f.name)
		}
	}
	return out
}

// packAr returns an ar archive of the files, whose names have at most 16 characters.
func packAr(made time.Time, files []file) []byte {
	var out bytes.Buffer
	out.WriteString("!<arch>\n")
	for _, f := range files {
		mode := 0o100000 | f.mode.Perm()
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", f.name, made.Unix(), 0, 0, mode, len(f.body))
		out.Write(f.body)
		if len(f.body)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}
