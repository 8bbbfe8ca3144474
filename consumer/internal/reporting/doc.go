// Package reporting has what a group of package consumer reports: to the program that made it, and in log lines that several
// partitions share.
//
// A [Reporter] logs the errors that no call returns, and sends them to the program. An [OpenLog] logs which partitions were
// opened and where they start. [Findings] are what audits of the stored offsets have found.
package reporting
