// Command ronbox-dist packs built ronbox binaries into the files of a release:
//
//	ronbox_VERSION_linux_ARCH.tar.gz    binary, documents, manual pages, completions, units
//	ronbox_VERSION_DEBARCH.deb          the same for Debian, with the system user of the unit
//	ronbox-VERSION-1.RPMARCH.rpm        the same for Fedora and others
//	ronbox_VERSION_linux_ARCH.cdx.json  the modules of the binary, as a CycloneDX SBOM
//	ronbox_VERSION_oci.tar              an OCI image layout with an image for each architecture
//	SHA256SUMS                          the digests of these files
//	SHA256SUMS.note                     SHA256SUMS as a signed note, if RONBOX_RELEASE_KEY is set
//
// `make dist` builds the binaries and calls it. It is a module of its own, so that ronbox does not
// depend on the library that writes .rpm files.
//
// # Invariants
//
//  1. The version and the time are those that Go recorded in the binaries. A binary that was built
//     without version control or from a modified checkout is refused, and so are two binaries of
//     different versions or commits.
//  2. The same commit and the same Go give the same bytes: entries are sorted, owned by root unless
//     the image needs another owner, and have the time of the commit. No file depends on the
//     machine, the directory, the umask or the clock.
//  3. Each package holds the licence of every module in its binary.
//  4. No file that ronbox writes at run time belongs to a package. Neither removal, purge nor
//     upgrade deletes /var/lib/ronbox, unless RONBOX_PURGE_DATA=yes is set for a purge.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package main
