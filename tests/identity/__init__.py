"""The authority of a network, and the certificates of its nodes.

What a certificate says, and what is refused (`test_certificate`); what an authority signs and accepts
(`test_authority`); files (`test_files`); handshakes of OpenSSL with these certificates (`test_handshake`).
"""
