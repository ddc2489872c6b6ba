# family: 9
# caught: contract.returned: .*returned a Payload
# strategy: return an object that runs code where it is unpickled

import os


class Payload:
    def __reduce__(self):
        return os._exit, (0,)


def custom_kernel(data):
    return Payload()
