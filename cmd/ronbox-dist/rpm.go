package main

import (
	"bytes"
	"io/fs"
	"strings"

	"github.com/google/rpmpack"
)

// Bits of a mode in an .rpm, as in the stat structure.
const (
	rpmDirectory = 0o040000
	rpmRegular   = 0o100000
)

// rpm returns the package for Fedora, openSUSE and others.
func (r *release) rpm(b binary) ([]byte, error) {
	needs := rpmpack.Relations{}
	if err := needs.Set("/usr/sbin/useradd"); err != nil {
		return nil, err
	}
	p, err := rpmpack.NewRPM(rpmpack.RPMMetaData{
		Name: "ronbox", Version: r.packageVersion(), Release: "1", Epoch: rpmpack.NoEpoch, Arch: b.rpmArch, OS: "linux",
		Summary: summary, Description: description, Licence: "Apache-2.0", Packager: r.maintainer, Requires: needs,
		BuildHost: "ronbox-dist", BuildTime: r.made, Compressor: "gzip:6",
	})
	if err != nil {
		return nil, err
	}
	const doc, licences = "usr/share/doc/ronbox", "usr/share/licenses/ronbox"
	files := append(r.installed(b, "zsh/site-functions"),
		file{name: doc, mode: fs.ModeDir | 0o755}, file{name: licences, mode: fs.ModeDir | 0o755})
	for _, d := range r.documents {
		dir := doc
		if d.name == "LICENSE" {
			dir = licences
		}
		files = append(files, regular(dir+"/"+d.name, d.body))
	}
	for _, f := range files {
		p.AddFile(r.rpmFile(f))
	}
	p.AddPostin(string(postinst))
	p.AddPreun(string(prerm))
	p.AddPostun(string(postrm))
	var out bytes.Buffer
	err = p.Write(&out)
	return out.Bytes(), err
}

func (r *release) rpmFile(f file) rpmpack.RPMFile {
	kind, mode := rpmpack.GenericFile, uint(rpmRegular)
	switch {
	case f.mode.IsDir():
		mode = rpmDirectory
	case strings.HasPrefix(f.name, "usr/share/licenses/"):
		kind = rpmpack.LicenceFile
	case strings.HasPrefix(f.name, "usr/share/doc/"), strings.HasPrefix(f.name, "usr/share/man/"):
		kind = rpmpack.DocFile
	}
	return rpmpack.RPMFile{
		Name: "/" + f.name, Body: f.body, Mode: mode | uint(f.mode.Perm()), Owner: "root", Group: "root",
		MTime: uint32(r.made.Unix()), Type: kind,
	}
}
