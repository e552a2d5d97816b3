package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const usage = `usage: ronbox-dist [-root DIR] [-out DIR] [-maintainer NAME] BINARY...
       ronbox-dist keygen NAME FILE

The first packs binaries of one commit, one for each architecture, into -out. The
second writes a new key for signing SHA256SUMS to FILE and prints its public key.
Signing needs RONBOX_RELEASE_KEY, the path of such a file.
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "ronbox-dist: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("ronbox-dist", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flags.PrintDefaults()
	}
	root := flags.String("root", ".", "`directory` of the sources")
	out := flags.String("out", "dist", "`directory` for the packages; it must not exist")
	maintainer := flags.String("maintainer", "ronbox maintainers <maintainers@ronbox.example>",
		"`name` and address of the packager")
	_ = flags.Parse(args) // ExitOnError
	if flags.Arg(0) == "keygen" {
		public, err := keygen(flags.Args()[1:])
		if err == nil {
			_, err = fmt.Println(public)
		}
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("want at least one binary; -h prints the usage")
	}
	r, err := load(*root, flags.Args())
	if err != nil {
		return err
	}
	r.maintainer = *maintainer
	packages, err := r.packages()
	if err != nil {
		return err
	}
	if key := os.Getenv("RONBOX_RELEASE_KEY"); key != "" {
		note, err := sign(key, packages[sumsName])
		if err != nil {
			return err
		}
		packages[sumsName+".note"] = note
	}
	return write(*out, packages)
}

// packages returns the bytes of every file of the release but the signature, by name.
func (r *release) packages() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, b := range r.binaries {
		for _, p := range []struct {
			name string
			pack func(binary) ([]byte, error)
		}{
			{fmt.Sprintf("ronbox_%s_linux_%s.tar.gz", r.version, b.arch), r.tarball},
			{fmt.Sprintf("ronbox_%s_%s.deb", r.packageVersion(), b.debArch), r.deb},
			{fmt.Sprintf("ronbox-%s-1.%s.rpm", r.packageVersion(), b.rpmArch), r.rpm},
			{fmt.Sprintf("ronbox_%s_linux_%s.cdx.json", r.version, b.arch), r.sbom},
		} {
			body, err := p.pack(b)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			out[p.name] = body
		}
	}
	image, err := r.image()
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	out[fmt.Sprintf("ronbox_%s_oci.tar", r.version)] = image
	out[sumsName] = sums(out)
	return out, nil
}

// packageVersion returns the version as .deb and .rpm spell it: "~" sorts a pre-release before its
// release, and "-" would begin a revision.
func (r *release) packageVersion() string { return strings.ReplaceAll(r.version, "-", "~") }

// write creates dir with these files and prints their names.
func write(dir string, packages map[string][]byte) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, packages[name], 0o644); err != nil {
			return err
		}
		if _, err := fmt.Printf("%8.1f MB  %s\n", float64(len(packages[name]))/1e6, path); err != nil {
			return err
		}
	}
	return nil
}
