// Command names makes input for `ronbox index put -f` of a state of the registry: the host of each endpoint stands, under a version, for the BLAKE3 of
// its line. Of a host with several lines the last one counts.
//
//	go run ./testdata/tour/names testdata/registry/08-v1.55.5.ndjson 1.55.5
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"

	"ronbox/appliance/b3"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: names FILE VERSION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file, version string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	hosts := map[string]b3.Digest{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var d struct {
			Endpoint string `json:"endpoint"`
		}
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return err
		}
		u, err := url.Parse(d.Endpoint)
		if err != nil {
			return err
		}
		if u.Host != "" {
			hosts[u.Hostname()] = b3.Sum(lines.Bytes())
		}
	}
	out := bufio.NewWriter(os.Stdout)
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		fmt.Fprintf(out, "name:%s@%s %s\n", host, version, hosts[host])
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return out.Flush()
}
