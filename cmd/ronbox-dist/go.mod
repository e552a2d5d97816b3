module ronbox/cmd/ronbox-dist

go 1.26.0

require (
	github.com/google/rpmpack v0.7.1
	golang.org/x/mod v0.42.0
	ronbox v0.0.0
)

require (
	github.com/cavaliergopher/cpio v1.0.1 // indirect
	github.com/coreos/go-systemd/v22 v22.7.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/klauspost/pgzip v1.2.6 // indirect
	github.com/ulikunitz/xz v0.5.12 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace ronbox => ../..
