"""Joint keys that nobody ever holds: threshold BGV, N of N members. Experimental.

The secret is s = s_1 + ... + s_n, one ternary secret of SEAL for each member; the sum is never
computed. There is one file per protocol, with its formula:

    public_key              collective public key, one round
    relinearisation_key     relinearisation key, two rounds
    galois_keys             keys for packing and rotations, one round
    opening                 shares of an opening, and switching to a receiver's key

``secret`` has the identity that turns SEAL's samples into samples of the protocols,
``common_string`` the common random polynomials, ``messages`` the format and checks of messages,
``state`` what a member stores, and ``key`` and ``member`` the two classes that run the protocols.

References: Mouchet, Troncoso-Pastoriza, Bossuat and Hubaux, "Multiparty homomorphic encryption from
ring-learning-with-errors" (eprint 2020/304); Mouchet, Bertrand and Hubaux, "An efficient threshold
access-structure for RLWE-based multiparty homomorphic encryption" (eprint 2022/780).
``docs/explanation/threshold.md`` has proofs, assumptions and attacks.

SEAL draws every secret and every error. This package expands the common string, re-bases samples,
adds residues, writes residues in SEAL's form, and floods shares
(:mod:`encryptedstats.crypto.flooding`). Imports ``crypto`` and ``storage``.
"""

from encryptedstats.joint.key import JointKey
from encryptedstats.joint.member import Member

__all__ = ["JointKey", "Member"]
