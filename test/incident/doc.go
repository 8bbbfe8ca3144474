// Package incident prepares a night on which much goes wrong, and asks of the logs, the metrics and /status that the processes
// leave behind what somebody on call would ask.
package incident
