import torch

if __name__ == "__main__":

    def custom_kernel(data):
        return data[6]

    print(torch.cuda.is_available())
