//! Memory shared by the processes of one host.
#![allow(unsafe_code)]
